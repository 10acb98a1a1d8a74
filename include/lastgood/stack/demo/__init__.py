"""`make run`: the whole life of a checkpoint, through the real scheduler, with proof of each claim.

place          what the demo reaches: Airflow, the coordinator, the catalog, the command line
job            the training job of examples/train.py, as processes
dag_runs       DAGs through Airflow's REST API
story          the steps, in their order
evidence       what stands at the end, read where each claim can be checked
expectations   what must hold, judged from the evidence alone
"""
