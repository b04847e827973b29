"""`barnabas console`: a web console for Barnabas and Apache Kafka (extra `console`).

It uses what any program can use: the client, and the functions of the commands on top of it. A
request runs through `request_checks`, the route table in `serving`, and a page or a change in
`pages/`.
"""
