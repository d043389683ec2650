"""The flow of a run: where its groups go, what a dry pass shows, the plan, and the timeline.

Everything here answers without torch, before anything starts or after it has ended.
"""
