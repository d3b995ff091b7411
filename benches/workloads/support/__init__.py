"""What the workloads share: loop names, the timed part, the served part."""
