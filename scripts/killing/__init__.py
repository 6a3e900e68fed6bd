"""Kills processes of a training at moments that are chosen, and says what became of it: what scripts/chaos.py is made of."""
