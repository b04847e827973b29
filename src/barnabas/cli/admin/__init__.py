"""Commands that show and change a cluster: its nodes, topics, groups, rights and configs."""
