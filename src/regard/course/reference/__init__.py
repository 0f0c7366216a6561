"""What each exercise's answer is, in plain loops over Python numbers: slow, in 64 bits, and easy to read twice.

Nothing here is shared with the rest of Regard, so that one mistake cannot stand on both sides of a comparison.
"""
