"""The lessons: their texts, their training runs and the results of ten seeds."""
