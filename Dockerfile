FROM astrocrpublic.azurecr.io/runtime:3.3-2

# The image has copied the project to /usr/local/airflow and installed requirements.txt. Airflow puts
# dags/ and plugins/ on its path, not include/: the library is imported as `lastgood`.
ENV PYTHONPATH=/usr/local/airflow/include \
    GX_ANALYTICS_ENABLED=false
