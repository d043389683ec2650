"""The models ``pi0`` and ``pi05``: flow matching on a vision-language model and an expert."""
