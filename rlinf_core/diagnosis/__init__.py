"""What a person asks about an installation: are its plugins well made, what does it lack?

``check.py`` puts a plugin to the test, ``doctor.py`` looks at the machine and at what is ready on
it. Whatever touches a plugin's own code does so in a process of its own (``apart.py``). Nothing
here is used by a run.
"""
