"""The contracts, one file per kind, with shapes and units. Importing them imports no torch.

Letters used in shapes: N environments, C steps in an action chunk, A action width, S state width,
T steps of a rollout, B rows of a batch, H x W pixels.
"""
