"""The demo: a real workload, with retries, a poison row and a killed worker, and a count that proves what became of it.

For each airport of `airports.csv` the workers find the nearest other one. To read it:

    rows      the file as it is, and the type that the queue expects
    work      what a handler does with a row, and how it can fail
    expected  what must come out, from the file alone
    ledger    what each worker wrote down, line by line, in a file of its own
    worker    one worker process
    crew      the worker processes, as their parent sees them
    proof     the counting: file, queue and ledgers side by side
    screen    progress bar and table
    story     all of it, in order
"""
