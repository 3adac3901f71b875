"""What would happen: plans and the map of a cluster, from a live state or from files. Nothing here changes anything."""
