"""The laboratory of Regard: models whose answer is known, compiled programs, cards of mechanisms, doubts."""
