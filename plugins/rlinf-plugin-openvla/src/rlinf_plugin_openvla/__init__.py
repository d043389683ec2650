"""OpenVLA: a Llama that reads an instruction and two vision towers, and writes actions as tokens.

architecture   sizes, from a checkpoint's config.json; imports no torch
published      the other files of a checkpoint; imports no torch
facts          what a checkpoint weighs, and what is refused before a run starts
vit, llama, network   the network, under the published names
processing     observations to what the network reads, tokens to actions
policy         acting and scoring
weights        reading and writing published weights
"""
