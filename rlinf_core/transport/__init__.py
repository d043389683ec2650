"""How weights travel, and how an end makes sure that all of them arrived."""
