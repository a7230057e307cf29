"""The server: the journal's sweeps over HTTP, for a team, for programs, and for agents."""
