"""An agent that speaks just enough of the Agent Client Protocol, by hand: it starts in no time."""

import json
import os
import signal
import sys
import time

HOW = sys.argv[1] if len(sys.argv) > 1 else "echo"
STOPS = {"cut": "max_tokens", "too-many": "max_turn_requests"}
EXAMPLE = '{"answer":"echo","sure":true}'


def say(**fields):
    print(json.dumps({"jsonrpc": "2.0", **fields}), flush=True)


def daemon(note):
    """Leaves a process of its own behind; the note says that it is there."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.closerange(0, 3)
            open(note, "w", encoding="utf-8").close()
            time.sleep(600)
        os._exit(0)
    while not os.path.exists(note):
        time.sleep(0.01)


def prompt(params):
    match HOW:
        case "slow":
            time.sleep(600)
        case "dies":
            sys.exit("no power")
        case "leaves":
            sys.exit(0)
        case "babbles":
            return {"result": {"stopReason": "bored"}}
        case "overloaded":
            return {"error": {"code": -32603, "message": "overloaded, try again in 7 s"}}
        case "chatty":
            print("Loading…\n[1]\n{broken\n\n", flush=True)
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            daemon(sys.argv[2])
            time.sleep(600)
        case "leaves-a-daemon":
            daemon(sys.argv[2])
    text = "".join(block["text"] for block in params["prompt"])
    pieces = [EXAMPLE] if "JSON Schema" in text else ["Said: ", text]
    for piece in [] if HOW == "silent" else pieces:
        update = {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": piece},
        }
        say(method="session/update", params={"sessionId": params["sessionId"], "update": update})
    return {"result": {"stopReason": STOPS.get(HOW, "end_turn")}}


for line in sys.stdin:
    asked = json.loads(line)
    match asked["method"]:
        case "initialize":
            version = 0 if HOW == "old" else asked["params"]["protocolVersion"]
            say(id=asked["id"], result={"protocolVersion": version})
        case "session/new":
            assert os.path.isabs(asked["params"]["cwd"])
            say(id=asked["id"], result={"sessionId": "1"})
        case "session/prompt":
            say(id=asked["id"], **prompt(asked["params"]))
