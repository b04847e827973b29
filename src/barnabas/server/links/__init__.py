"""The links of a broker: connections to source clusters, and the work beside fetching records."""
