"""The embedded stack: PostgreSQL and Airflow from wheels, for a laptop, a test or a demo."""
