"""Runs: train a model, load it, and test, attend, translate, align or prune with it.

    run = regard.train("signal2", heads=8)
    run.test()
    run.attend("BCCCBAABACCCA")

    run = regard.train("dates")
    run.translate(["3. Mai 1979", "14 juillet 1989"])

The command line calls the same functions.
"""
