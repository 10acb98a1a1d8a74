FROM astrocrpublic.azurecr.io/runtime:3.3-2

# The image has copied the project to /usr/local/airflow and installed requirements.txt. Airflow puts
# dags/ and plugins/ on its path, not include/: the library is installed, and with it its version, its
# command line and the entry points of its formats.
RUN pip install --no-cache-dir --no-deps --editable /usr/local/airflow
ENV GX_ANALYTICS_ENABLED=false
