"""Advantages and losses: lean NumPy, ours, and peers, each as functions of the same inputs.

``cases.py`` holds the inputs, ``lean.py`` the yardstick. ``ours.py`` and ``peer_*.py`` hold
``FUNCTIONS``: case to ``(inputs) -> call``, where ``call(backward)`` returns the number or array
that is compared with the yardstick's. ``run.py`` times one of them beside the yardstick.
"""
