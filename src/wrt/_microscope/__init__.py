"""The microscope: a recorded run to look at. What the page asks is answered here; what it looks like is in `frontend/`.

    model.py     what a page may ask, answered from one recording
    server.py    a page that computes what is clicked, on this machine alone
    saved.py     a page in one file, with what was computed beforehand
    open.py      t.show(), t.save_html(), t.widget(): the page served, in a file, in a notebook
"""
