"""How executors find, register with and report to their driver: one TCP connection each, one JSON object a line.

`executor` is the executor's side, `listener` the driver's, `door` what the listener asks of a fleet. An executor says
its id and the fleet's token. The listener asks the fleet whether it may register, and tells the driver who is
connected, what is answered and who is lost. It never decides who gets which work: that is the driver's, see
`actors.tasks`. `docs/how-to/find-the-driver.md` shows drivers and executors that use it, and every line that is sent.
"""
