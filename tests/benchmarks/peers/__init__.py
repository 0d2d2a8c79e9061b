"""Peers that are not Python: one program each, which watches the pods as the peer's users would."""
