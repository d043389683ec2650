"""The flow of a run: where its groups go, what a dry pass shows, and the plan made of both.

Everything here answers before anything starts and imports no torch.
"""
