"""Bytes that survive a crash; knows no word of the domain.

Import from the modules that define things: `store.home` opens a home on disk,
`store.memory` one in memory, `store.primitives` says what both offer.
"""
