"""Stands for a NAT: takes connections at one address and carries their bytes to another.

    forward.py 10.77.1.1:8118=10.77.0.1:8118 ...
"""

import socket
import sys
import threading


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        sink.close()


def carry(inner, target):
    try:
        outer = socket.create_connection(target, timeout=30)
    except OSError:
        inner.close()
        return
    outer.settimeout(None)
    for pair in ((inner, outer), (outer, inner)):
        threading.Thread(target=pump, args=pair, daemon=True).start()


def serve(listener, target):
    while True:
        carry(listener.accept()[0], target)


def main():
    for words in sys.argv[1:]:
        here, target = map(address, words.split("="))
        listener = socket.create_server(here)
        threading.Thread(target=serve, args=(listener, target), daemon=True).start()
    print("carries", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
