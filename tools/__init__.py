"""What makes files of the repository from the library: its type stubs and its site."""
