"""Carrying out plans: the only caller of pull and push, in chunks, with a certificate."""
