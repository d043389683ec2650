"""Who runs where: workers, groups of them, the channels between them and the runtimes."""
