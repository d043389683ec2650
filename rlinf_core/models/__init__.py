"""What vision-language-action models share, once, each part exact against the published code.

    statistics   which statistics of a dataset un-normalise the actions; imports no torch
    normalize    bounds (q01 and q99) and z-scores, both ways, with padding
    actions      action bins, their token ids, log-probs and entropy within them
    images       resizing, and the normalisations of an image stacked by channel
    heads        the critic's head
    tensor_files published checkpoints: tensors by name, all of them or one error

Plugins reach these names through ``rlinf_core.api``. Log-probs of a Gaussian, 0 where its deviation
is 0, are ``rl.gaussian_logprobs``. A part that a second model needs moves here.
"""
