"""The microscope: a recorded run to look at. What the page asks is answered here; what it looks like is in `frontend/`.

    model.py     what a page may ask, answered from one recording
    server.py    a page that computes what is clicked, on this machine alone
    saved.py     a page in one file, with what was computed beforehand
    widget.py    a page in a notebook
"""
