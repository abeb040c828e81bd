"""What a provider, or a gateway's daily tables, says was used: reports, not requests."""
