"""Configurations in the image: of topics, brokers, groups, clients' metrics and quotas."""
