"""Records on their way into a store that answers questions: followed, fed, asked. No worker imports any of it.

In: `follow` gives each line of the record files, `feed` puts its rows into the store that `opening` opens, and `positions` is how far that
is. Out: a question goes from `client` to the `desk` of the recorder process, and from there to the store.
"""
