"""torch.package: code, pickled objects and files in one archive, loaded apart from the process's own modules."""

from __future__ import annotations

from .exporting import EmptyMatchError, PackageExporter, PackagingError
from .globs import Directory, GlobGroup
from .importers import Importer, ObjMismatchError, ObjNotFoundError, OrderedImporter, is_from_package, sys_importer
from .loading import PackageImporter

__all__ = ["Directory", "EmptyMatchError", "GlobGroup", "Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter",
           "PackageExporter", "PackageImporter", "PackagingError", "is_from_package", "sys_importer"]
