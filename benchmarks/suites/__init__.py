"""Problems of public suites, and the searches on them: `public.py` has the command."""
