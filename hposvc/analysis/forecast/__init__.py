"""Forecast a sweep's cost, by simulating it under its own rules with what is known of a step.

`evidence` says what an earlier sweep or a pilot shows, `beliefs` what may follow from it,
`simulation` plays one possible sweep, `forecast` draws many and sums up, `plan` is the verb.
"""
