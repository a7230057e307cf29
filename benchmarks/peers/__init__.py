"""Other libraries' searchers behind one ask and tell: `peers.roster` starts them."""
