"""OpenVLA-OFT (Kim et al., arXiv 2502.19645): OpenVLA that gives a whole chunk in one pass.

What it shares with OpenVLA it takes from ``rlinf_plugin_openvla``.

    network   what is added to the network: parallel decoding, FiLM, the robot's state, the L1 head
    policy    acting and scoring
    parts     the files that are published beside the weights
    facts     what a checkpoint weighs, and what is refused before a run starts; imports no torch
"""
