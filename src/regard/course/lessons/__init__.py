"""The lessons: their texts, their training runs and the results of ten seeds."""

from regard.course.lessons.lesson import RUNS, Lesson, LessonRun, Range, find_lesson, lessons

__all__ = ["RUNS", "Lesson", "LessonRun", "Range", "find_lesson", "lessons"]
