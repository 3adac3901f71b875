"""Plans and the topology map of a cluster, from a live state or from files. Nothing here changes anything."""
