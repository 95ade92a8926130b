"""The same agent's steps kept by Holdfast and by its peers, each in its natural way."""

from bench.peers.comparison import run as run
