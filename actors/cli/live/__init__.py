"""The live table of `executor-pods run`: the fleet, what blocks it, its executors and the latest events, with keys.

`LiveFleet` is what is shown, `View` what the keys chose of it, `render` the lines of the screen: pure, all three.
`Keyboard` and `LiveTable` are the terminal. Nothing here decides what happens to a fleet.
"""
