"""The lessons: their texts, their training runs and the results of ten seeds."""

from regard.course.lessons.lesson import (
    RUNS as RUNS,
    Lesson as Lesson,
    LessonRun as LessonRun,
    Range as Range,
    find_lesson as find_lesson,
    lessons as lessons,
)
