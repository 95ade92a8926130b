"""Models: one way to ask any of them.

`protocol` says what a question and a reply are, `registry` opens a model by its name.  Nothing is
imported here: a provider's library loads when a model of that provider is opened.
"""
