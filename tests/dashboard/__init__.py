"""The Grafana dashboard against a real Prometheus: a cluster at work, the queries, and a picture of the panels."""
