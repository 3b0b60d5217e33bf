"""What the driver does around the tasks of an epoch: start, plan, align, commit, migrate."""
