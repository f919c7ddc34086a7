// How many threads native loops use. One number for the whole process, whichever Python thread asks.
#pragma once

int thread_count();
