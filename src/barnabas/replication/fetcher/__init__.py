"""The follower: fetches from leaders and appends to the local logs."""
