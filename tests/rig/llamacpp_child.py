"""The process of `rig.llamacpp`: serves one model until it is killed. Its argument is JSON."""

from __future__ import annotations

import json
import signal
import sys

import xllamacpp

settings = json.loads(sys.argv[1])
parameters = xllamacpp.CommonParams()
parameters.model.path = settings.pop("model")
parameters.n_ctx = 512
parameters.warmup = False
parameters.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE
for name, value in settings.items():
    setattr(parameters, name, value)
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)  # noqa: T201  # into the log
signal.pause()
