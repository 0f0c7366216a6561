"""Lessons: what the course teaches, the runs that show it, and what ten seeds came to."""

from regard.course.lessons.lesson import Lesson, Range, find_lesson, lessons
from regard.course.lessons.lesson_runs import RUNS, LessonRun

__all__ = ["RUNS", "Lesson", "LessonRun", "Range", "find_lesson", "lessons"]
